// The form of a new connector. Each request is one of the REST API: validate while somebody types, preview, create.
"use strict";

const form = document.getElementById("new-connector");
const byId = (id) => document.getElementById(id);
const plugin = `connector-plugins/${encodeURIComponent(form.dataset.plugin)}`;
const address = (path) => new URL(form.dataset.root + path, location.href);
const MILLISECONDS = 300; // without a key, before a validation

// All texts go into the page as text, never as HTML.
function element(name, text, children = []) {
  const made = document.createElement(name);
  made.textContent = text;
  made.append(...children);
  return made;
}

function config() {
  const given = [["connector.class", form.dataset.plugin]];
  for (const field of form.querySelectorAll("[data-option]")) {
    if (field.value !== "") given.push([field.name, field.value]);
  }
  for (const line of byId("others").value.split("\n")) {
    const [key, ...value] = line.split("=");
    if (line.trim() !== "") given.push([key.trim(), value.join("=").trim()]);
  }
  return Object.fromEntries(given);
}

async function send(method, path, body) {
  let answer;
  try {
    answer = await fetch(address(path), {
      method, body: JSON.stringify(body), headers: { "Content-Type": "application/json" },
    });
  } catch {
    throw new Error("the worker does not answer");
  }
  const document = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(document.message || `the worker answered ${answer.status}`);
  return document;
}

function showRequest(given, configs) {
  const types = new Map(configs.map(({ definition }) => [definition.name, definition.type]));
  let hides = false;
  // What the answer does not list may be a secret as well.
  const visible = Object.entries(given).map(([key, value]) => {
    if (types.has(key) && types.get(key) !== "PASSWORD") return [key, value];
    hides = true;
    return [key, "[hidden]"];
  });
  const { name = "", ...options } = Object.fromEntries(visible);
  const json = JSON.stringify({ name, config: options }, null, 2);
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  byId("json").textContent = json;
  byId("curl").textContent = `curl -X POST -H 'Content-Type: application/json' ${quoted(address("connectors").href)} -d ${quoted(json)}`;
  byId("hides").hidden = !hides;
}

function showErrors(configs) {
  const listed = [];
  const added = []; // options that the form does not have: those of a transform, for example
  for (const { definition, value } of configs) {
    const field = byId(`option-${definition.name}`);
    if (field) {
      byId(`error-${definition.name}`).textContent = value.errors.join(" ");
      field.toggleAttribute("aria-invalid", value.errors.length > 0);
    } else if (definition.documentation !== "" && definition.name !== "connector.class") {
      added.push(element("li", "", [element("code", definition.name), `: ${definition.documentation}`]));
    }
    for (const error of value.errors) {
      const link = element("a", definition.name);
      link.href = `#${field ? field.id : "others"}`;
      listed.push(element("li", "", [link, `: ${error}`]));
    }
  }
  byId("errors").replaceChildren(...listed);
  byId("others-known").replaceChildren(...(added.length ? [element("p", "What is configured has these options:"), element("ul", "", added)] : []));
  byId("verdict").textContent = listed.length === 0 ? "The configuration is valid." : `${listed.length} ${listed.length === 1 ? "error" : "errors"}`;
}

let version = 0; // of what is typed: answers to an earlier one are not shown
async function check() {
  const checked = version;
  const given = config();
  try {
    const { configs } = await send("PUT", `${plugin}/config/validate`, given);
    if (checked !== version) return;
    showErrors(configs);
    showRequest(given, configs);
  } catch (error) {
    if (checked === version) byId("verdict").textContent = error.message;
  }
}

function showPreview(preview) {
  const rows = preview.topics.map(({ topic, partitions, table, problem }) =>
    element("tr", "", [element("th", topic), element("td", String(partitions)), element("td", problem ?? table ?? "")]));
  rows.forEach((row) => { row.firstChild.scope = "row"; });
  const heads = ["Topic", "Partitions", "Table"].map((text) => element("th", text));
  heads.forEach((head) => { head.scope = "col"; });
  const place = preview.format === "delta" ? preview.namespace : `${preview.catalog}.${preview.namespace}`;
  const texts = [
    rows.length === 0 ? "No topic matches." : `Topics: ${rows.length + preview.more_topics}. Tables are in ${place}.`,
    preview.names_from_records && `The names of tables follow from records: ${preview.names_from_records}.`,
    preview.missing.length > 0 && `Do not exist yet: ${preview.missing.join(", ")}.`,
    preview.more_topics > 0 && `${preview.more_topics} of the topics are not shown.`,
  ].filter(Boolean).map((text) => element("p", text));
  const scroll = element("div", "", rows.length ? [element("table", "", [element("thead", "", [element("tr", "", heads)]), element("tbody", "", rows)])] : []);
  scroll.className = "scroll";
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", "Topics and tables");
  byId("previewed").replaceChildren(...texts, ...(rows.length ? [scroll] : []));
}

let typed;
form.addEventListener("input", () => {
  version += 1;
  byId("previewed").replaceChildren(); // it was of another configuration
  clearTimeout(typed);
  typed = setTimeout(check, MILLISECONDS);
});

byId("errors").addEventListener("click", (event) => {
  const field = event.target.hash && byId(event.target.hash.slice(1));
  if (!field) return;
  event.preventDefault();
  const folded = field.closest("details");
  if (folded) folded.open = true;
  field.focus();
});

byId("preview").addEventListener("click", async () => {
  const previewed = version;
  try {
    const preview = await send("PUT", `${plugin}/config/preview`, config());
    if (previewed === version) showPreview(preview);
  } catch (error) {
    if (previewed === version) byId("previewed").replaceChildren(element("p", error.message));
  }
});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { name = "", ...options } = config();
  try {
    await send("POST", "connectors", { name, config: options });
    location.assign(address(`ui/connectors/${encodeURIComponent(name)}`));
  } catch (error) {
    byId("verdict").textContent = error.message;
  }
});

check();
