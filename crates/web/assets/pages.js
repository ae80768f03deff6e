// @ts-check
export function opened() {}
export function patch() {}
export function event() {}
