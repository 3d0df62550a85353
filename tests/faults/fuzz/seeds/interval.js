let ticks = 0;
const handle = setInterval(() => {
  ticks += 1;
  if (ticks === 3) clearInterval(handle);
}, 2);
while (ticks < 3) await new Promise((resolve) => setTimeout(resolve, 1));
return ticks;
