"""Tasks with fixed answers for agents over local servers, and what three ways of showing tools cost for them."""
