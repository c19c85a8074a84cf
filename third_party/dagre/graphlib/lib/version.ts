export const version = '4.0.5';
