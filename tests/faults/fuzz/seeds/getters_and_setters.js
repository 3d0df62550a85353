const log = [];
const object = {
  get a() { log.push("get"); return this._a; },
  set a(value) { log.push("set"); this._a = value; },
  get ["computed" + 1]() { return 1; },
  __proto__: { inherited: true, get late() { return delete this.late; } },
};
object.a = 1; object.a += 1; object.a ??= 5; object.a++;
Object.defineProperty(object, "fixed", { value: 1 });
return [log, object, object.inherited, Object.getOwnPropertyDescriptor(object, "a").set.name];
