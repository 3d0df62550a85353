const found = [];
for (let page = 0; page < 3; page++) {
  found.push(page);
  await yield_control("page " + page);
}
json(found);
return { pages: found.length };
