/* What nvidia-smi prints: the table, `nvidia-smi -L`, or a line of a query. */
function readSmi(text) {
  const found = {};
  const driver = text.match(/Driver Version:\s*([\d.]+)/i) || text.match(/\b(\d{3}\.\d{2,3}(?:\.\d{2,3})?)\b/);
  const cuda = text.match(/CUDA Version:\s*(\d+\.\d+)/i);
  if (driver) found.driver = driver[1];
  else if (cuda) found.driver = `CUDA ${cuda[1]}`;
  const names = [
    ...text.matchAll(/GPU \d+:\s*(.+?)\s*\(UUID/g),
    ...text.matchAll(/^\|\s*\d+\s+((?:NVIDIA|Tesla|Quadro|GeForce|GRID|Orin|Thor|Jetson)\b.*?)(?:\s{2,}|\s+(?:On|Off|WDDM|TCC|N\/A)\b|\s*\|)/gm),
    ...text.matchAll(/^\s*(NVIDIA [^,|\n]+?)\s*(?:,|$)/gm),
  ].map((match) => match[1].replace(/\.\.\.$/, "").trim());
  found.gpus = [...new Set(names)];
  if (/\bWDDM\b|\bTCC\b/.test(text)) found.place = "windows-x86_64";
  return found;
}
