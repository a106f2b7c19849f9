// The addresses of senders behind trusted proxies, and the keys that they are counted under. It is
// a part of the middleware. The Go client's ByAddress and forward-auth give the same keys.

import { BlockList, isIP, isIPv4, isIPv6 } from "node:net";

// networks returns the networks that a list of addresses and networks, such as "10.0.0.0/8", names.
export function networks(list) {
  const all = new BlockList();
  for (const text of list) {
    const [, address, bits] = /^([^/]*)(?:\/(\d+))?$/.exec(text) ?? [];
    const family = isIP(address);
    if (!family || bits > (family === 4 ? 32 : 128)) {
      throw new TypeError(`trustedProxies: ${text} is no address and no network`);
    }
    all.addSubnet(address, Number(bits ?? (family === 4 ? 32 : 128)), `ipv${family}`);
  }
  return all;
}

// addressKey returns the key of a sender: its IPv4 address, or the /64 network of its IPv6 address.
// It reads X-Forwarded-For from the right, while addresses are trusted proxies' and well-formed.
// Without an address the key is "none".
export function addressKey(peer, forwarded, trusted) {
  let address = plain(`${peer ?? ""}`);
  if (address && forwarded) {
    const list = [forwarded].flat().join().split(",");
    while (list.length > 0 && trusted.check(address, isIPv4(address) ? "ipv4" : "ipv6")) {
      const next = parsed(list.pop().trim());
      if (!next) break;
      address = next;
    }
  }
  return keyOf(address);
}

// parsed reads an item of X-Forwarded-For: an address, which some proxies send with a port.
function parsed(text) {
  const bare = plain(text.replace(/^[[\]]+|[[\]]+$/g, ""));
  const [, v6, v4] = /^(?:\[([^[\]]*)\]|([^:]*)):\d{1,5}$/.exec(text) ?? [];
  return bare ?? plain(v6 ?? v4 ?? "");
}

// plain returns an address without a zone, IPv4 if it is mapped to IPv6; undefined if it is none.
function plain(text) {
  if (isIPv4(text)) return text;
  if (!isIPv6(text)) return undefined;
  const bare = text.replace(/%.*/, ""), groups = groupsOf(bare);
  const mapped = groups.slice(0, 5).every((g) => g === 0) && groups[5] === 0xffff;
  return mapped ? ipv4(groups[6], groups[7]) : bare;
}

// groupsOf returns the eight groups of an IPv6 address.
function groupsOf(address) {
  const hex = address.replace(/(\d+)\.(\d+)\.(\d+)\.(\d+)$/, (_, a, b, c, d) =>
    `${(a * 256 + +b).toString(16)}:${(c * 256 + +d).toString(16)}`);
  const [head, tail] = hex.split("::").map((part) => part.split(":").filter((g) => g !== ""));
  const zeros = Array(8 - head.length - (tail?.length ?? 0)).fill("0");
  return [...head, ...(tail ? [...zeros, ...tail] : [])].map((g) => parseInt(g, 16));
}

const ipv4 = (high, low) => `${high >> 8}.${high & 255}.${low >> 8}.${low & 255}`;

function keyOf(address) {
  if (!address) return "none";
  if (isIPv4(address)) return address;
  const g = groupsOf(address);
  if (g[0] === 0x64 && g[1] === 0xff9b && g.slice(2, 6).every((x) => x === 0)) { // NAT64
    return ipv4(g[6], g[7]);
  }
  if (g[0] === 0x64 && g[1] === 0xff9b && g[2] === 1 && g[4] < 256) return localNAT64(g);
  if (g[0] === 0x2002) return ipv4(g[1], g[2]); // 6to4
  if (g[0] === 0x2001 && g[1] === 0) return ipv4(g[6] ^ 0xffff, g[7] ^ 0xffff); // Teredo
  return `${compressed([...g.slice(0, 4), 0, 0, 0, 0])}/64`;
}

// localNAT64 returns the IPv4 address in an address of 64:ff9b:1::/48 (RFC 8215). The translator's
// prefix has 48, 56, 64 or 96 bits, and only zeros follow the IPv4 address (RFC 6052, section 2.2).
function localNAT64(groups) {
  const bytes = groups.flatMap((g) => [g >> 8, g & 255]);
  bytes.splice(8, 1); // it is 0, and no part of the IPv4 address
  const at = [6, 7, 8, 11].find((end) => bytes.slice(end + 4).every((x) => x === 0));
  return bytes.slice(at, at + 4).join(".");
}

// compressed writes an address as RFC 5952 does: its longest run of zeros, the first of equal ones,
// is "::". The last four groups are zeros.
function compressed(groups) {
  let zeros = groups.length;
  while (zeros > 0 && groups[zeros - 1] === 0) zeros--;
  return groups.slice(0, zeros).map((g) => g.toString(16)).join(":") + "::";
}
