// Serves the files of a directory over HTTP until SIGTERM.
const fs = require('fs');
const http = require('http');

const [root, port] = process.argv.slice(2);
const server = http.createServer((request, answer) => {
  const file = fs.createReadStream(root + request.url);
  file.on('error', () => { answer.statusCode = 404; answer.end(); });
  file.pipe(answer);
});
server.listen(Number(port), '0.0.0.0');
process.on('SIGTERM', () => {
  server.close(() => process.exit(0));
  server.closeAllConnections();
});
