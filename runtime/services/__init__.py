"""What starts, steers and ends executions; each module one kind of outcome."""
