(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");

  /* Folded parts open when a link leads into them. */
  function reveal() {
    var target = null;
    try { target = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch (error) { return; }
    if (!target || !location.hash) return;
    for (var node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    target.scrollIntoView();
  }
  window.addEventListener("hashchange", reveal);
  document.addEventListener("click", function (event) {
    var link = event.target.closest && event.target.closest('a[href^="#"]');
    if (link && link.getAttribute("href") === location.hash) reveal();
  });

  /* Code opens at its hottest line. */
  function openAtHottest(scope) {
    scope.querySelectorAll(".source-scroll").forEach(function (box) {
      var row = box.querySelector("tr.hottest"), head = box.querySelector("thead");
      if (row) box.scrollTop = Math.max(0, row.offsetTop - (head ? head.offsetHeight : 0) - 3 * row.offsetHeight);
    });
  }
  openAtHottest(document);
  document.querySelectorAll("#source details").forEach(function (part) {
    part.addEventListener("toggle", function () { if (part.open) openAtHottest(part); });
  });

  /* Copying. */
  document.querySelectorAll("[data-copy]").forEach(function (button) {
    button.addEventListener("click", function () {
      var text = button.parentElement.querySelector("code").textContent;
      function said(word) {
        button.textContent = word;
        setTimeout(function () { button.textContent = "Copy"; }, 1500);
      }
      function byHand() {
        var area = document.createElement("textarea");
        area.value = text;
        document.body.appendChild(area);
        area.select();
        var done = document.execCommand("copy");
        area.remove();
        button.focus();
        said(done ? "Copied" : "Press Ctrl+C");
      }
      if (navigator.clipboard) navigator.clipboard.writeText(text).then(function () { said("Copied"); }, byHand);
      else byHand();
    });
  });

  /* Sorting: a number column by its data-value or the number it begins with, the others by their text. */
  function figureIn(cell) {
    var found = (cell.dataset.value || cell.textContent).replace(/,/g, "").match(/-?[0-9.]+(e[0-9]+)?/);
    return found ? Number(found[0]) : -1;
  }
  document.querySelectorAll("table.sortable").forEach(function (table) {
    var body = table.tBodies[0];
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (head, column) {
      var button = document.createElement("button");
      button.type = "button";
      while (head.firstChild) button.appendChild(head.firstChild);
      head.appendChild(button);
      button.addEventListener("click", function () {
        var up = head.getAttribute("aria-sort") !== "ascending";
        Array.prototype.forEach.call(table.tHead.rows[0].cells, function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        var number = head.classList.contains("number");
        var rows = Array.prototype.map.call(body.rows, function (row) {
          var cell = row.cells[column];
          return { row: row, key: number ? figureIn(cell) : cell.textContent.trim() };
        });
        rows.sort(function (a, b) {
          var order = number ? a.key - b.key : a.key.localeCompare(b.key);
          return up ? order : -order;
        });
        rows.forEach(function (entry) { body.appendChild(entry.row); });
      });
    });
  });

  /* The section in view, in the navigation. */
  if ("IntersectionObserver" in window) {
    var links = {};
    document.querySelectorAll("nav a").forEach(function (link) { links[link.getAttribute("href").slice(1)] = link; });
    var sections = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        var link = links[entry.target.id];
        if (!link) return;
        if (entry.isIntersecting) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      });
    }, { rootMargin: "-15% 0px -75% 0px" });
    document.querySelectorAll("main > section").forEach(function (section) { sections.observe(section); });
  }

  /* What a word means, and what a point of a chart is. */
  var tip = document.body.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.setAttribute("role", "status");
  function hide() { tip.style.display = "none"; }
  function tell(parts, x, y) {
    tip.textContent = "";
    parts.forEach(function (part) {
      var line = tip.appendChild(document.createElement("div"));
      if (part.name) line.appendChild(document.createElement("span")).textContent = part.name;
      line.appendChild(document.createElement("b")).textContent = part.text;
    });
    tip.style.display = "block";
    var wide = root.clientWidth, left = x + 14;
    if (left + tip.offsetWidth > wide - 8) left = Math.max(8, x - 14 - tip.offsetWidth);
    tip.style.left = Math.min(left, Math.max(8, wide - 8 - tip.offsetWidth)) + "px";
    tip.style.top = Math.max(8, Math.min(y + 16, innerHeight - tip.offsetHeight - 8)) + "px";
  }
  document.querySelectorAll("abbr[title]").forEach(function (word) {
    var meaning = word.title;
    word.removeAttribute("title");
    word.setAttribute("aria-description", meaning);
    function show() {
      var box = word.getBoundingClientRect();
      tell([{ text: meaning }], box.left - 14, box.bottom - 10);
    }
    word.addEventListener("pointerenter", show);
    word.addEventListener("focus", show);
    word.addEventListener("pointerleave", hide);
    word.addEventListener("blur", hide);
  });
  window.addEventListener("scroll", hide, { passive: true });

  /* A chart is a drawing. Near a point stands its row of the table twin; a mouse dragged over a part enlarges it, a double click shows all. */
  function quantity(value) {
    var size = Math.abs(value), step = [[1e15, " P"], [1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]].find(function (each) { return size >= each[0]; });
    return size < 10000 ? String(Number(value.toPrecision(4))) : Number((value / step[0]).toPrecision(4)) + step[1];
  }
  function axis(text) {
    var parts = text.split(" "), log = parts[4] === "log", ends = parts.slice(0, 4).map(Number);
    function to(value) { return log ? Math.log10(Math.max(value, 1e-300)) : value; }
    return { low: to(ends[0]), high: to(ends[1]), start: ends[2], end: ends[3], to: to, log: log };
  }
  function marksOf(low, high, log) {
    var values = [], step = Math.pow(10, Math.floor(Math.log10((high - low) / 3)));
    if (log && high - low > 0.7) {
      for (var decade = Math.floor(low); decade <= high; decade += 1) {
        (high - low > 4 ? [1] : [1, 2, 5]).forEach(function (factor) { values.push(decade + Math.log10(factor)); });
      }
    } else {
      var from = log ? Math.pow(10, low) : low, upto = log ? Math.pow(10, high) : high;
      step = Math.pow(10, Math.floor(Math.log10((upto - from) / 3)));
      if ((upto - from) / step > 8) step *= 2;
      for (var value = Math.ceil(from / step) * step; value <= upto; value += step) values.push(log ? Math.log10(value) : value);
    }
    return values.filter(function (value) { return value >= low && value <= high; });
  }
  document.querySelectorAll(".static").forEach(function (drawing) {
    var figure = drawing.closest("figure"), table = figure && figure.querySelector(".twin table");
    if (!table) return;
    var heads = Array.prototype.map.call(table.tHead.rows[0].cells, function (cell) { return cell.textContent; });
    var places = drawing.dataset.at.split(";").map(function (place) { return place ? place.split(",").map(Number) : null; });
    var area = drawing.querySelector(".area"), whole = area.getAttribute("viewBox").split(" ").map(Number), view = whole;
    var shapes = Array.prototype.map.call(area.querySelectorAll("use"), function (shape) {
      return { shape: shape, x: Number(shape.getAttribute("x")), y: Number(shape.getAttribute("y")) };
    });
    var rule = document.createElementNS("http://www.w3.org/2000/svg", "path");
    rule.setAttribute("class", "rule-line");
    drawing.insertBefore(rule, area);
    function toScreen(x, y) { /* of a place in the whole drawing: where the enlarged one shows it */
      return [whole[0] + ((x - view[0]) * whole[2]) / view[2], whole[1] + ((y - view[1]) * whole[3]) / view[3]];
    }
    function at(event) {
      var point = drawing.createSVGPoint();
      point.x = event.clientX;
      point.y = event.clientY;
      return point.matrixTransform(drawing.getScreenCTM().inverse());
    }
    function inside(point) {
      return point.x >= whole[0] && point.x <= whole[0] + whole[2] && point.y >= whole[1] && point.y <= whole[1] + whole[3];
    }
    function near(point) {
      var best = -1, least = Infinity;
      places.forEach(function (place, index) {
        if (!place) return;
        var shown = toScreen(place[0], place.length > 1 ? place[1] : 0);
        var away = Math.hypot(shown[0] - point.x, place.length > 1 ? shown[1] - point.y : 0);
        if (away < least) { least = away; best = index; }
      });
      return best >= 0 && (places[best].length === 1 || least < 40) ? best : -1;
    }
    var from = null, box = null;
    function move(event) {
      var point = at(event);
      if (from && box) {
        var x = Math.min(Math.max(point.x, whole[0]), whole[0] + whole[2]), y = Math.min(Math.max(point.y, whole[1]), whole[1] + whole[3]);
        box.setAttribute("d", "M" + from.x + " " + from.y + "H" + x + "V" + y + "H" + from.x + "Z");
        box.to = { x: x, y: y };
        return hide();
      }
      var index = inside(point) ? near(point) : -1;
      if (index < 0) { rule.removeAttribute("d"); return hide(); }
      var shown = toScreen(places[index][0], 0);
      rule.setAttribute("d", "M" + shown[0] + " " + whole[1] + "v" + whole[3]);
      var cells = table.tBodies[0].rows[index].cells;
      tell(heads.map(function (name, column) { return { name: name, text: cells[column].textContent }; }).filter(function (each) {
        return each.text !== "-";
      }), event.clientX, event.clientY);
    }
    drawing.addEventListener("pointermove", move);
    drawing.addEventListener("pointerdown", move);
    drawing.addEventListener("pointerleave", function () { rule.removeAttribute("d"); hide(); });
    if (!drawing.dataset.x) return;

    var across = axis(drawing.dataset.x), up = axis(drawing.dataset.y);
    var xTicks = drawing.querySelector(".x-ticks"), yTicks = drawing.querySelector(".y-ticks");
    var original = [xTicks.innerHTML, yTicks.innerHTML];
    function redraw() {
      var kx = whole[2] / view[2], ky = whole[3] / view[3];
      area.querySelectorAll("path").forEach(function (path) {
        path.setAttribute("transform", "translate(" + (whole[0] - view[0] * kx) + " " + (whole[1] - view[1] * ky) + ") scale(" + kx + " " + ky + ")");
      });
      shapes.forEach(function (each) {
        var shown = toScreen(each.x, each.y);
        each.shape.setAttribute("x", shown[0]);
        each.shape.setAttribute("y", shown[1]);
      });
      if (view === whole) { xTicks.innerHTML = original[0]; yTicks.innerHTML = original[1]; return; }
      function value(side, place) { return side.low + ((place - side.start) / (side.end - side.start)) * (side.high - side.low); }
      function place(side, value) { return side.start + ((value - side.low) / (side.high - side.low)) * (side.end - side.start); }
      function text(side, value) { return quantity(side.log ? Math.pow(10, value) : value); }
      xTicks.innerHTML = marksOf(value(across, view[0]), value(across, view[0] + view[2]), across.log).map(function (mark) {
        var x = toScreen(place(across, mark), 0)[0].toFixed(1);
        return '<path class="grid" d="M' + x + " " + whole[1] + "v" + whole[3] + '"/><text x="' + x + '" y="' + (whole[1] + whole[3] + 17) + '">' + text(across, mark) + "</text>";
      }).join("");
      yTicks.innerHTML = marksOf(value(up, view[1] + view[3]), value(up, view[1]), up.log).map(function (mark) {
        var y = toScreen(0, place(up, mark))[1];
        return '<path class="grid" d="M' + whole[0] + " " + y.toFixed(1) + "h" + whole[2] + '"/><text x="' + (whole[0] - 8) + '" y="' + (y + 4).toFixed(1) + '">' + text(up, mark) + "</text>";
      }).join("");
    }
    drawing.addEventListener("pointerdown", function (event) {
      var point = at(event);
      if (event.pointerType !== "mouse" || event.button !== 0 || !inside(point)) return;
      event.preventDefault();
      from = point;
      box = drawing.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "path"));
      box.setAttribute("class", "zoom-box");
      drawing.setPointerCapture(event.pointerId);
    });
    function release() {
      if (!box) return;
      var to = box.to;
      box.remove();
      box = null;
      if (!to || Math.abs(to.x - from.x) < 12 || Math.abs(to.y - from.y) < 12) { from = null; return; }
      var kx = view[2] / whole[2], ky = view[3] / whole[3];
      view = [
        view[0] + (Math.min(from.x, to.x) - whole[0]) * kx, view[1] + (Math.min(from.y, to.y) - whole[1]) * ky,
        Math.abs(to.x - from.x) * kx, Math.abs(to.y - from.y) * ky,
      ];
      from = null;
      redraw();
    }
    drawing.addEventListener("pointerup", release);
    drawing.addEventListener("pointercancel", release);
    drawing.addEventListener("dblclick", function () { view = whole; redraw(); });
  });

  /* Colours: as the system, light, dark. */
  var themes = { auto: "◐ auto", light: "☀ light", dark: "☾ dark" };
  var button = document.getElementById("theme");
  function show(theme) {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = themes[theme];
    button.setAttribute("aria-label", "Colours: " + (theme === "auto" ? "as the system" : theme));
  }
  var theme = "auto";
  try { theme = localStorage.getItem("advisor-theme") || "auto"; } catch (error) { /* a page from a file may keep nothing */ }
  if (!(theme in themes)) theme = "auto";
  show(theme);
  button.addEventListener("click", function () {
    var names = Object.keys(themes);
    theme = names[(names.indexOf(theme) + 1) % names.length];
    show(theme);
    try { localStorage.setItem("advisor-theme", theme); } catch (error) { /* then it lasts for this view */ }
  });

  reveal();
})();
