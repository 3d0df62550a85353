// Lend each available book of one author to a reader, and show who has what. All requests of a step run in parallel.
const books = unwrap(await MCP.library.listBooks({ author: "Eliot" }));
const lent = await Promise.all(
  books.filter((book) => book.available).map((book) => MCP.library.lendBook({ bookId: book.id, reader: "Ada" })),
);
const again = await MCP.library.lendBook({ bookId: books[0].id, reader: "Bo" });
return {
  lent: lent.map((loan) => unwrap(loan).bookId),
  again: again._meta.http.status,
  table: unwrap(await MCP.library.getCatalogueCsv({})).split("\n").length,
};
