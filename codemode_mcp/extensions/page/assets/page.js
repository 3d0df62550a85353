// Shows changes while a page is open, and sends the decisions of the person.
"use strict";

const main = document.getElementById("main");
const status = document.getElementById("status");
const dialog = document.getElementById("confirm");
const topics = new Set((main.dataset.live || "").split(" ").filter(Boolean));

// Time after the page shows what a decision of this person has done, in which the decision may change it further.
const ANSWER = 1000;
// Time for which the buttons of a changed part do nothing: a person may be about to press what was there before.
const GUARD = 700;
// Time after which good news no longer covers the page. A problem stays until the next message.
const NEWS = 10000;

let updating = false;
let again = false;
let stream = null;
let decision = ""; // "sent", then "answered" until the page shows what it has done
let shown = 0;
let hiding = null;

function say(text, bad) {
  status.textContent = text;
  status.className = bad ? "shown bad" : "shown";
  clearTimeout(hiding);
  if (!bad) hiding = setTimeout(() => { status.textContent = ""; }, NEWS);
}

async function update() {
  if (updating) {
    again = true;
    return;
  }
  const began = performance.now();
  const answered = decision === "answered";
  updating = true;
  again = false;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.status === 401) return location.reload();
    if (!answer.ok) return;
    replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    // The process has ended, or starts again. The stream of events tells when it answers.
  } finally {
    updating = false;
    if (answered && decision === "answered") {
      decision = "";
      shown = performance.now();
    }
    // The process paces its messages. On a slow machine, an update may still last until after the next message.
    if (again) setTimeout(update, performance.now() - began);
  }
}

function replace(next) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const other = next.querySelector(`[data-part="${CSS.escape(part.dataset.part)}"]`);
    const html = other?.innerHTML;
    if (!other || html === part.dataset.was) continue;
    const first = part.dataset.was === undefined && html === part.innerHTML;
    part.dataset.was = html;
    if (first) continue;
    const focus = place(part, document.activeElement);
    if ("guard" in part.dataset) {
      // A button that a person may be about to press must not become the button of something else.
      part.replaceChildren(...other.childNodes);
      guard(part);
    } else {
      change(part, other);
    }
    if (focus !== null) focusable(part)[focus]?.focus({ preventScroll: true });
  }
}

function change(part, other) {
  // What stays the same stays in place: the browser does not lay it out again, and a selection of text is kept.
  const before = [...part.childNodes];
  const after = [...other.childNodes];
  after.forEach((node, number) => {
    const old = before[number];
    if (!old) part.append(node);
    else if (old.nodeName !== node.nodeName) old.replaceWith(node);
    else if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== node.data) old.data = node.data;
    } else {
      changeAttributes(old, node);
      change(old, node);
    }
  });
  for (const old of before.slice(after.length)) old.remove();
}

function changeAttributes(old, node) {
  for (const { name, value } of node.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  // A person opens and closes details.
  for (const { name } of [...old.attributes]) if (name !== "open" && !node.hasAttribute(name)) old.removeAttribute(name);
}

function focusable(part) {
  return [...part.querySelectorAll("a[href], button, input, select, summary, [tabindex]")];
}

function place(part, element) {
  const at = part.contains(element) ? focusable(part).indexOf(element) : -1;
  return at < 0 ? null : at;
}

function guard(part) {
  const buttons = [...part.querySelectorAll("button")];
  const explained = !buttons.length || decision || performance.now() - shown <= ANSWER;
  if (!explained) say("What is shown here has changed. Look again before you decide.");
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
  decision = "sent";
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
    say(result.message || result.error || "", !answer.ok);
    if (answer.ok && form.dataset.then) location.assign(form.dataset.then);
  } catch {
    say("The process did not answer. Look whether it still runs before you try again.", true);
  } finally {
    button.removeAttribute("aria-disabled");
    decision = "answered";
    update();
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.classList.contains("act")) return;
  event.preventDefault();
  send(form, event.submitter || form.querySelector("button"));
});

function listen() {
  // The first message of a stream is an update, too: something may have changed since this page was made.
  stream = stream || new EventSource(`/events?topics=${encodeURIComponent([...topics].join(" "))}`);
  stream.onmessage = (event) => { if (event.data !== "full") update(); };
}

function stop() {
  stream?.close();
  stream = null;
}

if (topics.size) {
  // A page that is not visible costs the process nothing.
  const follow = () => (document.visibilityState === "hidden" ? stop() : listen());
  document.addEventListener("visibilitychange", follow);
  follow();
  // A page that was left keeps no connection: a browser allows six for one address.
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
}
