"""The pages, each module those of one subject. `ROUTES` of each has its addresses."""
