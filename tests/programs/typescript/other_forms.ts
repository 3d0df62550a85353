// ---- a typed arrow function => 42
async (): Promise<number> => { return 42 as number }
// ---- a typed export => 42
export default async (): Promise<number> => {
  const x: number = 42
  return x
}
// ---- types before a function => 42
interface Answer { value: number }
type Other = string
async function main(): Promise<number> {
  const answer: Answer = { value: 42 }
  return answer.value
}
// ---- typed globals => "object"
async ({ MCP }: { MCP: any }): Promise<string> => typeof MCP
// ---- a cast of an arrow function => 42
(async () => { const x: number = 42; return x }) as () => Promise<number>
// ---- a fence => 42
```ts
const x: number = 42
return x
```
// ---- module.exports => 42
module.exports = async (): Promise<number> => 42 as number
