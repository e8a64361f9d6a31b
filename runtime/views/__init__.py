"""HTTP views that may start or stop work: parse, one call, render."""
