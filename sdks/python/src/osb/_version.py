"""The version of this package, which its requests carry."""

VERSION = "0.1.0"
