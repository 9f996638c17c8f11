"""The blocking client: `net` is written by hand, everything else is made from `osb._async`."""
