const kept = [];
try {
  for (let i = 0; ; i++) kept.push(new Uint8Array(1 << 20).fill(i));
} catch (error) {
  kept.length = 0;
  text(error.message);
}
return "survived";
