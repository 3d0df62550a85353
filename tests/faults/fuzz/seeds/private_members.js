class Account {
  #balance = 0;
  static #count = 0;
  static made() { return Account.#count; }
  constructor(start) { this.#balance = start; Account.#count++; }
  get balance() { return this.#balance; }
  set balance(value) { if (value < 0) throw new RangeError("overdrawn"); this.#balance = value; }
  #audit() { return `${this.#balance}`; }
  report() { return #balance in this ? this.#audit() : null; }
}
const account = new Account(5);
account.balance -= 3;
return [account.balance, account.report(), Account.made(), account];
