class Temperature {
  constructor(degrees) { this.degrees = degrees; }
  [Symbol.toPrimitive](hint) { return hint === "string" ? `${this.degrees}°` : this.degrees; }
  get [Symbol.toStringTag]() { return "Temperature"; }
  static [Symbol.hasInstance](value) { return "degrees" in Object(value); }
  *[Symbol.iterator]() { yield this.degrees; }
}
const t = new Temperature(21);
return [`${t}`, t + 1, Object.prototype.toString.call(t), { degrees: 1 } instanceof Temperature, [...t], Symbol.for("x").description];
