"""Tools, programs and figures that measure the type check of programs."""
