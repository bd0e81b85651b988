// The OpenAPI document, by a public validator.
//     node openapi.mjs api/openapi.json
import { Validator } from "@seriousme/openapi-schema-validator";

const validator = new Validator();
const result = await validator.validate(process.argv[2]);
if (!result.valid) console.error(JSON.stringify(result.errors, null, 2));
console.log(`OpenAPI ${validator.version}: ${result.valid ? "valid" : "not valid"}`);
process.exit(result.valid ? 0 : 1);
