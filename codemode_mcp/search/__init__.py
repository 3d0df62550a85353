"""Rank texts for a request in everyday words.

BM25F over the names and texts of a tool, with a thesaurus between a request's words and the words of APIs. The
thesaurus (`thesaurus.txt`) was written by hand from how people talk, never from a server's tools. The best by words are
compared in meaning too, by one small vector per word (`word_vectors.bin`, our own fit to a sentence model).

Where the extra `semantic` is installed, a hit's score is `4 * cosine + score by words / best score by words` over all
tools: the model finds tools that share no word with the request, and the words decide between tools that mean the same.
Results hardly change with a weight anywhere from 3 to 5. A second after everything is open, and after each change,
`warmup` makes the index and the vectors in a thread; searches use vectors only when all of a catalog's are there.

A request with several wishes ("create a workbook, add a chart and send it") is split (`wishes`). Each wish is ranked
alone, and a tool's best score for one of them counts beside its score for the whole.

Change weights only for reasons that hold for any tools; `benchmarks/run.py search` measures them over labelled
requests. Tried and dropped, since what one labelled set gained another lost: fewer hits of one server, word vectors
refitted to summaries of MCP servers, word-by-word similarity, a vector for each server, reciprocal rank fusion.

`words` splits and stems, `thesaurus` knows what people call things, `index` ranks by words, `vectors` compares meaning,
`wishes` splits a request that asks for several things, and `finder` puts them together. `semantic` compares meaning
with a sentence model, and `warmup` makes all of it ready in the background.
"""
