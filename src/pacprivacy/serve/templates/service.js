(function () {
  "use strict";
  var token = "";
  var at = function (id) { return document.getElementById(id); };
  var KINDS = { mi_nats: "information, nats", success_increment: "membership, points above 50 %", mu_squared: "squared influence on one person" };

  function say(text, bad) {
    at("message").textContent = text;
    at("message").className = bad ? "bad" : "";
  }
  function call(path, body) {
    var options = { headers: { Authorization: "Bearer " + token }, cache: "no-store" };
    if (body) {
      options.method = "POST";
      options.headers["Content-Type"] = "application/json";
      options.body = JSON.stringify(body);
    }
    return fetch(path, options).then(function (response) {
      return response.json().then(function (found) {
        if (!response.ok) { throw new Error(response.status + ": " + found.error); }
        return found;
      });
    });
  }
  function fail(error) { say(error.message, true); }
  function shown(kind, amount) {
    return kind === "success_increment" ? down(100 * amount) : down(amount);
  }
  function down(amount) {  // what is left is never rounded up
    if (!(amount > 0)) { return "0"; }
    var step = Math.pow(10, Math.floor(Math.log10(amount)) - 3);
    return String(Number((Math.floor(amount / step * (1 + 1e-9)) * step).toPrecision(4)));
  }
  function row(table, cells) {
    var line = document.createElement("tr");
    cells.forEach(function (cell, place) {
      var box = document.createElement(place ? "td" : "th");
      if (!place) { box.scope = "row"; }
      if (cell instanceof Node) { box.appendChild(cell); } else { box.textContent = cell.text; }
      if (cell.number) { box.className = "number"; }
      line.appendChild(box);
    });
    at(table).tBodies[0].prepend(line);
  }
  function budget(left, limits) {
    at("budget").tBodies[0].textContent = "";
    ["total", "own"].forEach(function (whose) {
      Object.keys(limits[whose] || {}).forEach(function (kind) {
        var bar = document.createElement("meter");
        var has = left[whose][kind], of = limits[whose][kind];
        bar.max = of || 1;
        bar.value = has;
        bar.setAttribute("aria-label", "share left");
        row("budget", [
          { text: whose === "own" ? "Yours" : "Everyone together" }, { text: KINDS[kind] },
          { text: shown(kind, has), number: true }, { text: shown(kind, of), number: true }, bar
        ]);
      });
    });
  }
  function refresh() {
    return call("/budget").then(function (found) {
      at("principal").textContent = found.principal;
      budget(found.left, found.limits);
    });
  }
  at("enter").addEventListener("submit", function (event) {
    event.preventDefault();
    token = at("token").value.trim();
    call("/certificate").then(function (found) {
      at("promise").textContent = found.promise;
      at("not-hidden").textContent = found.not_hidden;
      at("certificate").textContent = found.text + (found.digest ? "\ndigest " + found.digest : "");
      at("ask-section").hidden = !found.n_columns;
      at("columns").textContent = ": " + (found.columns ? found.columns.join(", ") : found.n_columns + " of them");
      at("sql-section").hidden = !found.sql;
      return refresh();
    }).then(function () {
      at("token").value = "";
      at("inside").hidden = false;
      say("");
    }).catch(fail);
  });
  at("ask").addEventListener("submit", function (event) {
    event.preventDefault();
    var lines = at("rows").value.split("\n").filter(function (line) { return line.trim(); });
    var rows = lines.map(function (line) {
      return line.split(",").map(function (word) { return word.trim() === "" ? NaN : Number(word); });
    });
    if (!rows.every(function (one) { return one.every(Number.isFinite); })) {
      say("Every question must be numbers with commas between.", true);
      return;
    }
    call("/predict", { rows: rows }).then(function (found) {
      found.labels.forEach(function (label, i) {
        var said = found.unanimous[i] ? label + " (fact)" : String(label);
        row("answers", [
          { text: lines[i].trim() }, { text: said },
          { text: found.noise_std[i] ? found.noise_std[i].toPrecision(3) : "0", number: true },
          { text: found.charges_nats[i] ? found.charges_nats[i].toPrecision(3) : "0", number: true }
        ]);
      });
      say(found.labels.length + " answered.");
      return refresh();
    }).catch(fail);
  });
  at("sql").addEventListener("submit", function (event) {
    event.preventDefault();
    call("/sql", { query: at("query").value }).then(function (found) {
      found.rows.slice().reverse().forEach(function (cells) {
        var text = cells.map(function (cell, i) { return found.columns[i] + " " + cell; }).join(", ");
        row("answers", [{ text: "SQL" }, { text: text }, { text: "in it", number: true }, { text: "", number: true }]);
      });
      if (at("ask-section").hidden) {
        at("promise").textContent = found.promise;
        at("not-hidden").textContent = found.not_hidden;
      }
      say(found.note || "Answered.");
      return refresh();
    }).catch(fail);
  });
}());
