"""The asynchronous client, and the source that the blocking one is made from."""
