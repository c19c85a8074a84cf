export const version = "3.1.3";
