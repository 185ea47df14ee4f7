// Node.js resolves imports by the whole name of their file.
export default { input: "openapi.json", output: { path: "generated", importFileExtension: ".js" } };
