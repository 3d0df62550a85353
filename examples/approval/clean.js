// Delete the notes from before 2020. Each deletion waits for a person; a denied one is a rejected promise.
const { notes } = unwrap(await MCP.notes.listNotes());
const old = notes.filter((note) => note.year < 2020);

const done = await Promise.allSettled(old.map(({ title }) => MCP.notes.deleteNote({ title }).then(unwrap)));

old.forEach(({ title }, number) => {
  const { status, reason } = done[number];
  text(status === "fulfilled" ? `deleted: ${title}` : `kept: ${title} (${reason.message})`);
});
return `${unwrap(await MCP.notes.listNotes()).notes.length} notes are left`;
