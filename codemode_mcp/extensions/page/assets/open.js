// Keeps the secret of the page for this origin, and goes to the page that was asked for. Other servers on this machine
// receive the cookie, too, but cannot read the storage of this origin.
"use strict";

const opening = document.getElementById("opening");
localStorage.setItem("page-secret", opening.dataset.secret);
location.replace(opening.dataset.path);
