var hidden = 1;
const read = new Function("return typeof hidden");
const direct = eval("hidden + 1");
const indirect = (0, eval)("typeof hidden");
with ({ hidden: 7 }) { var inside = hidden; }
return [read(), direct, indirect, inside, eval("(function () { return typeof this })()")];
