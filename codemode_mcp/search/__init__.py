"""Rank texts for a request in everyday words.

`words` splits and stems, `thesaurus` knows what people call things, `index` ranks by words, `vectors` compares meaning,
`wishes` splits a request that asks for several things, and `finder` puts them together. `semantic` compares meaning
with a sentence model, and `warmup` makes all of it ready in the background.
"""
