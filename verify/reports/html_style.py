"""The style sheet of the HTML page: two themes by the reader's preference, one column that fits a phone."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --raised: #f6f7f9; --text: #1b1f24; --quiet: #59626d; --line: #dfe3e8; --grid: #e8ebef;
  --pass: #066b45; --fail: #b3261e; --fail-page: #fdf3f2; --fail-line: #f1cdca; --beyond: #b3261e14;
  --v0: #2f66c9; --v1: #c2570c; --v2: #7a48c4; --v3: #0b7a63; --v4: #b02a6f; --v5: #5c6670;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #111417; --raised: #191d22; --text: #e7eaee; --quiet: #9ea8b3; --line: #2c333b; --grid: #232930;
    --pass: #58cf98; --fail: #ff8a7e; --fail-page: #241615; --fail-line: #5a2b28; --beyond: #ff8a7e1f;
    --v0: #82aaf5; --v1: #f0a15e; --v2: #bd9cf2; --v3: #57c7ad; --v4: #ef86b8; --v5: #a9b3bd;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--text); line-height: 1.5; overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.5rem 5rem; }
h1, h2, h3, p, dl, dd, ul, table { margin: 0; }
h1 { font-size: 2.25rem; line-height: 1.2; font-weight: 650; letter-spacing: -0.02em; }
h2 { font-size: 1.25rem; line-height: 1.3; font-weight: 620; letter-spacing: -0.01em; margin: 3rem 0 0.25rem; }
h3 { font-size: 1rem; line-height: 1.4; font-weight: 620; }
code { font: 0.875em/1.4 ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, monospace; }
.over { color: var(--quiet); font-size: 0.875rem; margin-bottom: 0.5rem; }
.pass { color: var(--pass); } .fail { color: var(--fail); } .skip, .quiet { color: var(--quiet); }
.lead { font-size: 1.0625rem; margin-top: 0.5rem; max-width: 46rem; }
.subject { font-size: 0.9375rem; margin-top: 0.5rem; }
.note { color: var(--quiet); font-size: 0.875rem; max-width: 46rem; }
.num { font-variant-numeric: tabular-nums; }

.kind { border: 1px solid var(--fail-line); background: var(--fail-page); border-radius: 10px; margin-top: 1rem; }
.kind > h3 { padding: 0.75rem 1rem; }
.kind > h3 .quiet { font-weight: 400; font-size: 0.875rem; }
.kind .item { border-top: 1px solid var(--fail-line); padding: 0.75rem 1rem; }
.kind summary { border-top: 1px solid var(--fail-line); padding: 0.625rem 1rem; }
.item .where { font-size: 0.875rem; font-weight: 600; }
.item dl { display: flex; flex-wrap: wrap; gap: 0.125rem 1.25rem; margin-top: 0.375rem; font-size: 0.8125rem; }
.item dl div { display: flex; gap: 0.375rem; }
.item dt { color: var(--quiet); } .item dd { font-variant-numeric: tabular-nums; }

.scroll { overflow-x: auto; margin-top: 0.75rem; }
table { border-collapse: collapse; font-size: 0.9375rem; width: 100%; }
th, td { text-align: left; vertical-align: baseline; padding: 0.5rem 1.25rem 0.5rem 0; }
th { font-weight: 600; } thead th { color: var(--quiet); font-size: 0.8125rem; }
tr + tr, tbody tr { border-top: 1px solid var(--line); }
.matrix { width: auto; min-width: min(100%, 30rem); }
.matrix th, .matrix td { white-space: nowrap; overflow-wrap: normal; }
.matrix tbody th { font-weight: 400; position: sticky; left: 0; background: var(--page); }
.matrix tr.sum > * { font-weight: 600; }

ul.reasons { padding: 0; margin-top: 0.5rem; list-style: none; } .reasons li { margin-top: 0.375rem; }

details { margin-top: 0.75rem; }
summary { cursor: pointer; color: var(--quiet); font-size: 0.9375rem; }
summary:hover { color: var(--text); }
summary:focus-visible { outline: 2px solid var(--v0); outline-offset: 2px; border-radius: 4px; }
.kind details { margin: 0; }

.legend { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; font-size: 0.875rem; margin-top: 0.5rem; padding: 0;
  list-style: none; }
.legend li { display: flex; align-items: center; gap: 0.375rem; }
.legend svg { width: 14px; height: 14px; overflow: visible; }
.chart { margin-top: 1rem; }
.chart h3 { margin-bottom: 0.25rem; }
.row { display: grid; grid-template-columns: minmax(6rem, 13rem) minmax(0, 1fr) 5rem; column-gap: 0.75rem;
  font-size: 0.8125rem; line-height: 1.3; }
.row > span { align-self: center; }
.row .value { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.plot { position: relative; min-height: 24px; } .bars .plot { min-height: 48px; } .axis .plot { min-height: 18px; }
.plot > svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; }
.row.axis { color: var(--quiet); }
.defs { position: absolute; width: 0; height: 0; }
.gridline { stroke: var(--grid); } .limit { stroke: var(--fail); stroke-dasharray: 3 2; }
.beyond { fill: var(--beyond); }
.axis text { fill: var(--quiet); font-size: 12px; } .axis text.one { fill: var(--fail); font-weight: 600; }
.mark { stroke: var(--page); stroke-width: 1; }
.v0 { fill: var(--v0); } .v1 { fill: var(--v1); } .v2 { fill: var(--v2); } .v3 { fill: var(--v3); }
.v4 { fill: var(--v4); } .v5 { fill: var(--v5); } .bar.fails { fill: var(--fail); } .bar.slow { opacity: 0.4; }

@media (max-width: 40rem) {
  main { padding: 1.5rem 1rem 4rem; }
  h1 { font-size: 1.875rem; }
  h2 { margin-top: 2.5rem; }
  .row { grid-template-columns: 6.5rem minmax(0, 1fr) 3.75rem; column-gap: 0.5rem; }
  .matrix { width: 100%; min-width: 0; }
  .matrix thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .matrix tr { display: flex; flex-wrap: wrap; column-gap: 1rem; padding: 0.5rem 0; }
  .matrix th, .matrix td { padding: 0; border: 0; white-space: normal; overflow-wrap: anywhere; }
  .matrix tbody th { flex-basis: 100%; }
  .matrix td:empty { display: none; }
  .matrix td[data-name]::before { content: attr(data-name) " "; color: var(--quiet); font-size: 0.8125rem; }
  .checks thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .checks tr { display: block; padding: 0.625rem 0; }
  .checks td { display: block; padding: 0; border: 0; }
  .checks td:nth-child(-n + 2) { display: inline; margin-right: 0.5rem; }
  .checks td:empty { display: none; }
  .checks td[data-name]::before { content: attr(data-name) " "; color: var(--quiet); font-size: 0.8125rem; }
}
@media print { main { max-width: none; padding: 0; } .kind, .row { break-inside: avoid; } }
""".strip()
