// Shows changes while a page is open, and sends the decisions of the person.
"use strict";

const main = document.getElementById("main");
const status = document.getElementById("status");
const dialog = document.getElementById("confirm");
const topics = new Set((main.dataset.live || "").split(" ").filter(Boolean));

// Time between two updates of a page that changes all the time. The first updates after a rest are immediate.
const PAUSE = 1000;
const IMMEDIATE = 3;
// Time for which the buttons of a changed part do nothing: a person may be about to press what was there before.
const GUARD = 700;
// Time after which good news no longer covers the page. A problem stays until the next message.
const NEWS = 10000;

let last = 0;
let left = IMMEDIATE;
let timer = null;
let updating = false;
let sent = 0;
let hiding = null;

function say(text, bad) {
  status.textContent = text;
  status.className = bad ? "shown bad" : "shown";
  clearTimeout(hiding);
  if (!bad) hiding = setTimeout(() => { status.textContent = ""; }, NEWS);
}

function schedule() {
  if (timer !== null) return;
  const now = performance.now();
  left = Math.min(IMMEDIATE, left + (now - last) / PAUSE);
  last = now;
  timer = setTimeout(update, left >= 1 ? 0 : (1 - left) * PAUSE);
}

async function update() {
  timer = null;
  if (updating) return schedule();
  updating = true;
  left -= 1;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.status === 401) return location.reload();
    if (!answer.ok) return;
    replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    // The process has ended, or starts again. The stream of events tells when it answers.
  } finally {
    updating = false;
  }
}

function replace(next) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const other = next.querySelector(`[data-part="${CSS.escape(part.dataset.part)}"]`);
    if (!other || other.innerHTML === part.dataset.was) continue;
    const first = part.dataset.was === undefined && other.innerHTML === part.innerHTML;
    part.dataset.was = other.innerHTML;
    if (first) continue;
    const focus = place(part, document.activeElement);
    const opened = [...part.querySelectorAll("details")].map((each) => each.open);
    part.innerHTML = other.innerHTML;
    part.querySelectorAll("details").forEach((each, number) => { each.open = opened[number] || false; });
    if (focus !== null) focusable(part)[focus]?.focus({ preventScroll: true });
    if ("guard" in part.dataset) guard(part);
  }
}

function focusable(part) {
  return [...part.querySelectorAll("a[href], button, input, select, summary, [tabindex]")];
}

function place(part, element) {
  const at = part.contains(element) ? focusable(part).indexOf(element) : -1;
  return at < 0 ? null : at;
}

function guard(part) {
  // After a decision of this person, the answer to it is shown.
  if (performance.now() - sent > PAUSE) say("What is shown here has changed. Look again before you decide.");
  const buttons = [...part.querySelectorAll("button")];
  for (const each of buttons) each.setAttribute("aria-disabled", "true");
  setTimeout(() => buttons.forEach((each) => each.removeAttribute("aria-disabled")), GUARD);
}

function confirmed(text) {
  document.getElementById("confirm-text").textContent = text;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

async function send(form, button) {
  if (button.getAttribute("aria-disabled") === "true") return;
  const question = button.dataset.confirm || form.dataset.confirm;
  if (question && !(await confirmed(question))) return;
  const body = Object.fromEntries(new FormData(form, button));
  Object.assign(body, JSON.parse(button.dataset.extra || "{}"));
  button.setAttribute("aria-disabled", "true");
  sent = performance.now();
  try {
    const answer = await fetch(form.dataset.action, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "x-codemode-page": localStorage.getItem("page-secret") || "",
      },
      body: JSON.stringify(body),
    });
    const result = await answer.json();
    sent = performance.now();
    say(result.message || result.error || "", !answer.ok);
    if (answer.ok && form.dataset.then) location.assign(form.dataset.then);
  } catch {
    say("The process did not answer. Look whether it still runs before you try again.", true);
  } finally {
    button.removeAttribute("aria-disabled");
    update();
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.classList.contains("act")) return;
  event.preventDefault();
  send(form, event.submitter || form.querySelector("button"));
});

if (topics.size) {
  const events = new EventSource("/events");
  let lost = false;
  events.addEventListener("message", (event) => {
    const told = event.data.split(" ");
    if (lost || told.some((each) => topics.has(each))) schedule();
    lost = false;
  });
  events.addEventListener("error", () => { lost = true; });
  // A page that was left keeps no connection: a browser allows six for one address.
  addEventListener("pagehide", () => events.close());
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
}
