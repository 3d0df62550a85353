// What the packages of the bundle see as `Intl`: a program cannot reach or change it.
export const intlInternals = {};
