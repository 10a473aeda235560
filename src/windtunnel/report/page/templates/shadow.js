"use strict";
// Asks for the page again and puts what is new in the place of what is shown.
const EVERY_MS = 5000;
let latest = "";
async function renew() {
  try {
    const reply = await fetch("/", { cache: "no-store" });
    if (!reply.ok) throw new Error(`status ${reply.status}`);
    const text = await reply.text();
    if (text !== latest) {
      latest = text;
      const next = new DOMParser().parseFromString(text, "text/html").querySelector("main");
      document.querySelector("main").replaceChildren(...next.childNodes);
    }
    document.body.classList.remove("stale");
  } catch (error) {
    document.body.classList.add("stale");
    document.getElementById("age").textContent = `The shadow does not answer (${error.message}): this is what it said last.`;
  }
}
setInterval(renew, EVERY_MS);
