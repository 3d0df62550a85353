// ---- wrong argument type: an amount without its currency
const charge = unwrap(await MCP.payments.createPayment({
  customerId: "cus_1",
  /*!*/money: 1250,
  idempotencyKey: crypto.randomUUID(),
}));
return charge.status;
// ---- wrong argument type: yes for true
const listing = await MCP.files.listDirectory({ path: "/src", /*!*/recursive: "true" });
return unwrap(listing);
// ---- wrong argument type: the whole result instead of its id
const draft = unwrap(await MCP.mail.createDraft({ subject: "Notes", body: { text: "..." } }));
const sent = unwrap(await MCP.mail.sendDraft({ /*!*/draftId: draft }));
return sent.messageId;
// ---- missing argument: a typed helper
type Options = { project: string; title: string };
const open = async ({ project, title }: Options) => {
  const created = await MCP.issues.createPullRequest(/*!*/{ project, title, head: "fix/login" });
  return unwrap(created).number;
};
return await open({ project: "acme/web", title: "Fix login" });
// ---- missing argument: a member of a nested object
const event = unwrap(await MCP.calendar.createEvent({
  calendarId: "primary",
  title: "Retro",
  /*!*/when: { kind: "timed", start: "2026-03-06T14:00:00Z" },
}));
return event.id;
// ---- missing argument: shorthand that forgets one
const channel = "C042", ts = "1700000000.1";
const done = await MCP.chat.chatUpdateMessage(/*!*/{ channel, ts });
return done.isError ?? false;
// ---- unknown argument: limit for maxResults
const today = new Date().toISOString();
const { events } = unwrap(await MCP.calendar.listEvents({ calendarId: "primary", timeMin: today, timeMax: today, /*!*/limit: 5 }));
return events.map((e) => e.title);
// ---- unknown argument: filter members at the top
const { messages } = unwrap(await MCP.mail.searchMessages({ /*!*/from: "boss@example.com", unread: true, limit: 20 }));
return messages.map((m) => m.subject);
// ---- array or object: a map for a list
const changed = unwrap(await MCP.files.editFile({
  path: "/src/app.ts",
  /*!*/edits: { oldText: "foo", newText: "bar" },
}));
return changed;
// ---- array or object: an object for the list of a result
const { result } = unwrap(await MCP.database.listTables({ database: "shop" }));
const sizes: Record<string, number> = {};
for (const [name, table] of Object.entries(result)) {
  sizes[name] = table./*!*/size;
}
return sizes;
