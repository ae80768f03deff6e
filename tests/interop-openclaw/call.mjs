// One request: call.mjs PORT TOKEN METHOD PARAMS.
import { connect, end } from "./gateway.mjs";

const [port, token, method, params] = process.argv.slice(2);
end(connect(port, token).then((gateway) => gateway.call(method, JSON.parse(params))));
