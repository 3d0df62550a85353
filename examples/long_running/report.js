// Longer than one answer may take. Meanwhile the program is suspended: it costs no memory, and its call stays in flight.
text("printing");
const report = MCP.press.printReport({ title: "Budget", pages: 4 }).then(unwrap);

// A timer runs while the call does.
await new Promise((done) => setTimeout(done, 200));
text("200 ms later: still printing");

// Answer now, with what there is; the next `wait` resumes here.
await yield_control("the first lines are there");

const { title, pages } = await report;
text(`${title} has ${pages} pages`);
return unwrap(await MCP.press.lookIntoTray()).printed.length;
