// The target of a WeakRef stays until the end of the turn in which it was made or read, as the standard has it.
const NativeSet = Set;
const setAdd = uncurry(Set.prototype.add);
const setClear = uncurry(Set.prototype.clear);
const keptTargets = new NativeSet();
setFunction(17, (target) => {
  setAdd(keptTargets, target);
});
setFunction(18, "All promises were rejected"); // the message of Promise.any
