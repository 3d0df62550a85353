function depth() { try { return 1 + depth(); } catch { return 1; } }
const reached = depth();
let nested = [];
for (let i = 0; i < 5000; i++) nested = [nested];
let told;
try { told = JSON.stringify(nested).length; } catch (error) { told = error.name; }
return [reached > 100, told];
