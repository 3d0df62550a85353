let steps = 0;
outer: for (const a of [1, 2, 3]) {
  inner: for (let b = 0; ; b++) {
    steps++;
    switch (true) {
      case b > a: continue outer;
      case steps > 20: break outer;
      default: continue inner;
    }
  }
}
return steps;
