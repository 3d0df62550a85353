"""What code mode saves, and where it costs more: measured on the user's own servers and recorded runs."""
