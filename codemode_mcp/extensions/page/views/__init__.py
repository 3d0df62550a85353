"""The pages by subject. Functions `routes` and `..._routes` return their addresses."""
