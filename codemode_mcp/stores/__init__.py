"""Suspended and ended runs, and kept values, in a database that outlives the process and that several share."""
