const hostile = { then(resolve, reject) { resolve({ then(again) { again(5); resolve(6); reject(7); } }); } };
const first = await hostile;
const never = { then() {} };
const second = await Promise.race([never, 1]);
return [first, second, hostile];
