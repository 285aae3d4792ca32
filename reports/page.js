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

  /* Sorting: a number column by its data-value, the others by their text. */
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
          return { row: row, key: number ? Number(cell.dataset.value) : cell.textContent.trim() };
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

  /* Charts. Without plotly the drawings in the page stay. */
  var probe = document.createElement("span");
  probe.style.display = "none";
  document.body.appendChild(probe);
  function colour(name) {
    probe.style.color = "var(" + name + ")";
    return getComputedStyle(probe).color;
  }
  function coloured(value) {
    if (typeof value === "string") return value.slice(0, 4) === "--c-" ? colour(value) : value;
    if (Array.isArray(value)) return value.map(coloured);
    if (value && typeof value === "object") {
      var copy = {};
      Object.keys(value).forEach(function (key) { copy[key] = coloured(value[key]); });
      return copy;
    }
    return value;
  }
  /* Labels of an axis that would touch are left out. */
  function thinned(axis, width) {
    if (!axis || !axis.tickvals || !axis.range) return;
    var span = axis.range[1] - axis.range[0], places = {}, last = axis.tickvals.length - 1;
    function rank(index) {
      return index === 0 || index === last ? 0 : Number.isInteger(Math.log2(axis.tickvals[index])) ? 1 : 2;
    }
    var order = axis.tickvals.map(function (_, index) { return index; });
    order.sort(function (a, b) { return rank(a) - rank(b) || a - b; });
    var kept = order.filter(function (index) {
      var value = axis.tickvals[index], room = 9 + 7.5 * String(axis.ticktext[index]).length;
      var at = (((axis.type === "log" ? Math.log10(value) : value) - axis.range[0]) / span) * width;
      var free = Object.keys(places).every(function (other) { return Math.abs(at - places[other]) >= room; });
      if (free) places[index] = at;
      return free;
    });
    kept.sort(function (a, b) { return a - b; });
    axis.ticktext = kept.map(function (index) { return axis.ticktext[index]; });
    axis.tickvals = kept.map(function (index) { return axis.tickvals[index]; });
  }
  /* Lines of a title that are not wider than its axis: plotly cuts off what is. */
  function folded(text, width) {
    var longest = Math.max(12, Math.floor(width / 7.2)), lines = [""];
    String(text).split(" ").forEach(function (word) {
      var last = lines.length - 1;
      if (lines[last] && lines[last].length + 1 + word.length > longest) lines.push(word);
      else lines[last] += (lines[last] ? " " : "") + word;
    });
    return lines.join("<br>");
  }
  /* Panels side by side while their titles have room, then in rows. */
  var PANEL = 150;
  function panels(layout) { return Object.keys(layout).filter(function (key) { return /^xaxis/.test(key); }); }
  function columns(layout, width) { return Math.max(1, Math.min(panels(layout).length, Math.floor((width - 80) / PANEL))); }
  function rows(layout, width) { return Math.ceil(panels(layout).length / columns(layout, width)); }
  function height(layout, width) {
    var down = rows(layout, width);
    return down > 1 ? 150 + 150 * down : 420; /* pixels; the first for the margins and the colour bar */
  }
  function arranged(figure, width) {
    var layout = figure.layout, names = panels(layout), across = columns(layout, width), down = rows(layout, width);
    if (down < 2) return;
    var wide = 1 / across, gap = 60 / (150 * down), pitch = (1 + gap) / down;
    names.forEach(function (name, index) {
      var column = index % across, top = 1 - Math.floor(index / across) * pitch;
      var other = name.replace("x", "y");
      layout[name].domain = [column * wide + (column ? 0.03 : 0), (column + 1) * wide - (column < across - 1 ? 0.03 : 0)];
      layout[other].domain = [Math.max(0, top - pitch + gap), top];
      layout[other].showticklabels = column === 0;
    });
    figure.data.forEach(function (trace) {
      if (!trace.marker || !trace.marker.colorbar) return;
      var bar = trace.marker.colorbar;
      bar.title.side = "top";
      Object.assign(bar, { orientation: "h", x: 0.5, xpad: 0, y: 1, yanchor: "bottom", thickness: 12 });
    });
  }
  function themed(layout, width) {
    var narrow = width < 620;
    thinned(layout.xaxis, width - 80);
    var ink = colour("--ink"), muted = colour("--muted"), line = colour("--line"), card = colour("--card");
    var across = columns(layout, width);
    new Set(Object.keys(layout).concat(["xaxis", "yaxis"])).forEach(function (key) {
      if (!/^[xy]axis/.test(key)) return;
      layout[key] = Object.assign({ automargin: true }, layout[key], {
        gridcolor: line, zeroline: false, linecolor: line, tickcolor: line, tickfont: { color: muted, size: 12 },
      });
      var title = layout[key].title;
      if (typeof title === "string") title = { text: title };
      if (key[0] === "x" && title && title.text) {
        title = Object.assign({}, title, { text: folded(title.text, (width - 80) / across) });
      }
      layout[key].title = Object.assign({}, title, { font: { color: ink, size: 13 } });
    });
    delete layout.title;
    delete layout.width;
    delete layout.height;
    return Object.assign(layout, {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, color: ink, size: 13 },
      margin: { l: narrow ? 48 : 62, r: 12, t: 8, b: 44 },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { color: ink, size: 12 } },
      hoverlabel: { bgcolor: card, bordercolor: line, font: { color: ink } },
    });
  }
  var config = { displaylogo: false, displayModeBar: false, scrollZoom: false, plotlyServerURL: "", topojsonURL: "" };
  function figureOf(element) { return JSON.parse(document.getElementById(element.dataset.figure).textContent); }
  function draw(element, paper) {
    if (!window.Plotly) return;
    var figure = coloured(figureOf(element)), holder = element.parentElement, width = paper || holder.offsetWidth;
    holder.classList.add("drawn");
    /* two of them on a page of paper */
    if (foreign.includes(element)) holder.style.height = height(figure.layout, width) * (paper ? 0.8 : 1) + "px";
    arranged(figure, width);
    /* plotly keeps the size of its last drawing unless it is told one; the client size would lack the scrollbars of a wider drawing */
    var layout = Object.assign(themed(figure.layout, width), { width: width, height: holder.offsetHeight });
    Promise.resolve(Plotly.react(element, figure.data, layout, config)).catch(function () {
      holder.classList.remove("drawn");
    });
    element.dataset.done = "yes";
  }
  var plots = Array.prototype.slice.call(document.querySelectorAll(".plot"));
  var foreign = plots.filter(function (plot) { return plot.parentElement.classList.contains("needs-script"); });
  function makeRoom() {
    foreign.forEach(function (plot) {
      plot.parentElement.style.height = height(figureOf(plot).layout, plot.parentElement.offsetWidth) + "px";
    });
  }
  makeRoom();
  var AT_ONCE = 6; /* the others when they come near */
  plots.slice(0, AT_ONCE).forEach(function (plot) { setTimeout(draw, 0, plot); });
  if (window.Plotly && "IntersectionObserver" in window) {
    var near = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        if (!entry.isIntersecting) return;
        near.unobserve(entry.target);
        draw(entry.target.querySelector(".plot"));
      });
    }, { rootMargin: "800px 0px" });
    plots.slice(AT_ONCE).forEach(function (plot) { near.observe(plot.parentElement); });
  } else {
    plots.slice(AT_ONCE).forEach(function (plot) { draw(plot); });
  }
  function redraw() { plots.forEach(function (plot) { if (plot.dataset.done) draw(plot); }); }

  /* Colours: as the system, light, dark. */
  var themes = { auto: "◐ auto", light: "☀ light", dark: "☾ dark" };
  var button = document.getElementById("theme");
  function show(theme) {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = themes[theme];
    button.setAttribute("aria-label", "Colours: " + (theme === "auto" ? "as the system" : theme));
    redraw();
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
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  /* The width only: the address bar of a phone comes and goes with scrolling. */
  var fitted = root.clientWidth, settling;
  window.addEventListener("resize", function () {
    clearTimeout(settling);
    settling = setTimeout(function () {
      if (root.clientWidth === fitted) return;
      fitted = root.clientWidth;
      makeRoom();
      redraw();
    }, 150);
  });

  /* Someone else's plots, of which the page has no drawing, are printed: in light colours, as wide as a page of A4. */
  var PAPER = 640;
  window.addEventListener("beforeprint", function () {
    root.dataset.theme = "light";
    foreign.forEach(function (plot) { draw(plot, PAPER); });
  });
  window.addEventListener("afterprint", function () { show(theme); });

  reveal();
})();
