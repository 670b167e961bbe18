"""The only place that starts a process, touches a file or looks at the clock."""
