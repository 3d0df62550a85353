// Where can we meet at nine? All offices are asked at the same time; one that does not answer holds up no other.
const cities = Object.keys(MCP);
const answers = await Promise.allSettled(cities.map((city) => MCP[city].freeRooms({ hour: 9 }).then(unwrap)));

const free = answers.flatMap(({ value }) => (value && value.rooms > 0 ? [value] : []));
const silent = cities.filter((_, number) => answers[number].status === "rejected");

text(`${answers.length - silent.length} of ${cities.length} offices answered; no answer from: ${silent.join(", ")}`);
for (const { city, rooms } of free.sort((a, b) => b.rooms - a.rooms)) text(`${city}: ${rooms}`);
