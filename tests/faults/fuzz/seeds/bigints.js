const big = 2n ** 200n;
const parts = [big.toString(36), BigInt.asIntN(64, big - 1n), -7n / 2n, -7n % 2n, BigInt("0x" + "f".repeat(40))];
let caught;
try { caught = 1n + 1; } catch (error) { caught = error.name; }
return [...parts, caught, 5n > 4, 2n == 2, typeof Object(1n), new BigInt64Array([1n, -1n])];
