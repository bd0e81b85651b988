// page_signin: a token becomes a session's cookie, which no script can read; the token itself is kept nowhere.
import { request } from "/dashboard/api.js";
import { fill, h, note } from "/dashboard/dom.js";

// said: why it is asked for again, or undefined.
export function signin(view, done, said) {
  const token = h("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const wrong = h("div", {}, said ? note("warn", said) : "");
  const button = h("button", { class: "first", type: "submit" }, "Sign in");
  const send = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      done(await request("POST", "/v1/session", undefined, { Authorization: `Bearer ${token.value.trim()}` }));
    } catch (error) {
      fill(wrong, note("bad", error.message));
      button.disabled = false;
      token.focus();
    }
  };
  document.title = "Sign in · Ithaca";
  fill(view, h("div", { class: "card signin" }, h("form", { onsubmit: send },
    h("h1", {}, "Sign in"),
    h("div", { class: "field" }, h("label", { for: "token" }, "Token"), token,
      h("span", { class: "help" }, "Your administrator gives you one. The administrator's own is in the file ",
        h("code", {}, "admin.token"), " of the daemon's data folder.")),
    wrong, button)));
  token.focus();
}
