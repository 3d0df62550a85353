Promise.reject(new Error("not looked at"));
Promise.reject(null);
queueMicrotask(() => { throw new TypeError("in a microtask"); });
setTimeout(() => { throw "in a timer"; }, 0);
const handled = Promise.reject(1);
await null;
handled.catch(() => {});
await new Promise((resolve) => setTimeout(resolve, 1));
return "done";
