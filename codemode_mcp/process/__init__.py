"""The process: the application and its parts, the instance that clients share, and the control socket."""
